import { mount } from 'svelte';
import App from './App.svelte';
import './styles/fonts.css';
import './styles/tokens.css';
import './styles/base.css';

const target = document.getElementById('app')!;
// The line that stood there while this file was on its way.
target.replaceChildren();
mount(App, { target });
